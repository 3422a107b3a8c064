"""Boards of Intel, as the kernel shows them: no library of the vendor is needed."""
