"""Rules for site profiles and for users' job scripts."""
