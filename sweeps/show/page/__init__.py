"""The page of a study, the page of all studies, and the report of scaling, as HTML files without a
server."""
