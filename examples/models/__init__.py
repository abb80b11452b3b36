"""The networks and the data of the examples; the commands stand beside this folder."""
