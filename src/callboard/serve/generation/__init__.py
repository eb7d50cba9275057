"""Text generation over HTTP: whole or streamed, under OpenAI's API and the Open Inference Protocol."""
