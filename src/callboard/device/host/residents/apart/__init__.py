"""What hosts do for actors in processes of their own: hold arrays for them, and open what is held."""
