"""Sign-in by the site's own provider, over OpenID Connect."""
