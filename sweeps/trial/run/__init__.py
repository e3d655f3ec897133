"""How the process of a trial runs the app: the program, its copies, child processes, and its
end."""
