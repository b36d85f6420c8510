"""Reference samples: how they are built, with noise floors and certificates, and verified."""
