"""The figures of a study as data of Plotly, and the same figures as files of pictures."""
