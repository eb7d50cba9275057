"""Models and apps to serve: a sentence encoder with its weights, ONNX files, apps as TOML files, the demo's app."""
