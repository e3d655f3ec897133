"""What persons read of a study: findings, tables and notes, shared by terminal, page, figures and
print.

Everything is rendered from the record; nothing here changes a study.
"""
