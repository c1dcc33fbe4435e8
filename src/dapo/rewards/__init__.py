"""Rewards: what turns one written answer into a number.

    settings.py        which reward, how many workers, how long, how much memory
    math_answers.py    built in: the last boxed or "Answer:" answer, compared as mathematics
    references.py      reference answers as data sets write them: read or refused
    exact_number.py    built in: the last number in the text, compared exactly
    countdown.py      built in: the last line's expression, by the given numbers, for the target
    user_function.py   a person's own function, in any of three known contracts
    pool.py            worker processes that run all of these under a time and a memory limit

Answers are hostile text: nothing here reads one outside a worker process that can be killed.
"""

from dapo.rewards.check import RewardCheck, check_answers, check_reward
from dapo.rewards.exact_number import exact_number_score
from dapo.rewards.math_answers import math_score
from dapo.rewards.math_finding import extract_answer
from dapo.rewards.pool import RewardPool
from dapo.rewards.record import RewardRecord
from dapo.rewards.settings import RewardSettings

__all__ = [
    "RewardCheck",
    "RewardPool",
    "RewardRecord",
    "RewardSettings",
    "check_answers",
    "check_reward",
    "exact_number_score",
    "extract_answer",
    "math_score",
]
