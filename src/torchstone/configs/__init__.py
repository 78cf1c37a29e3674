"""Traces and files of other tools -> SeenConfigurations, and back."""
