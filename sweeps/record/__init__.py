"""What is stored of a study: its definition, its journal, and the trials that both fold into.

One process writes it, and what runs next is a function of it.
"""
