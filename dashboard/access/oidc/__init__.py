"""Sign-in at the site's own provider, over OpenID Connect."""
