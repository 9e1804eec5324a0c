"""Tree growth: strategies, selection and the scheduler. Pure: policy, judge, journal and clock are arguments."""
