"""What runs look like: figures as data, as pictures, and as one page."""
