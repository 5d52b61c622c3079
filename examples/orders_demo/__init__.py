"""The parts of the demo: a shop and its day, a driver to kill, the screen, and a picture."""
