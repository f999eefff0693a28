"""The commands of `luminet` that use a control plane over REST, here or elsewhere. They never use its database.

command.py has the options and the session of every command, rest.py the connection.
"""
