"""The experiments of the page "Five minutes". Each yields its steps as data and undoes itself."""
