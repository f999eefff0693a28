"""The bodies of the REST API's requests and answers, a module for each subject."""
