"""Tables for papers: LaTeX, Markdown and CSV."""
