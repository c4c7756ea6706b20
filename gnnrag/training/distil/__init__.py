"""From a teacher's decisions to training rows: record, label by what they gained, filter, balance, split, describe."""
