"""Will it fit: memory and speed of training and serving a language model, from its shape."""
