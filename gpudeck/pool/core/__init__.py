"""What hub and agent both decide by. Pure, standard library alone."""
