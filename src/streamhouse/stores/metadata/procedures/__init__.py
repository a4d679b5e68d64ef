"""The door's calls, each as what it does in one transaction: written once, for every SQL engine."""
