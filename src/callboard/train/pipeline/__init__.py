"""A model in stages beside devices: schedules, their simulator, and the trainer that runs them."""
