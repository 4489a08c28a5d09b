"""The command lines of cotainr and tykky."""
