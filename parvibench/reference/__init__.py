"""Building reference samples, their noise floors and the certificates that vouch for them."""
