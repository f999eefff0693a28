"""Models as the calculator knows them: read from any Hugging Face config, or by a name of their own.

Standard library only: the control plane imports this. What comes out is a `kernels.shapes.ModelShape`.
"""
