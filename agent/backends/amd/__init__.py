"""AMD boards by the kernel's own files, without a library of the vendor."""
