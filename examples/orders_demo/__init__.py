"""The parts of the demo: a shop's orders, a child process to kill, the screen, and a picture."""
