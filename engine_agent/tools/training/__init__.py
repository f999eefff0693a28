"""The training of the demo model. Not installed with the wheel. Start reading at `train.py`."""
