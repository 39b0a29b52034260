"""Notes to ears and eyes; the optional libraries ([audio], [plot]) are imported when used."""
