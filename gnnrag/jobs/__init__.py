"""Many runs as a graph of jobs: what a command line asks for, what is done already, who does the rest."""
