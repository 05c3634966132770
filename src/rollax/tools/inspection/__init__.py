"""What a run is to the compiler and to the machine, before and while it runs."""
