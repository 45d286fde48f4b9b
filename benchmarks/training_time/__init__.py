"""How long a whole training takes when the model shrinks on the way: ours, dense and the peers, in turns."""
