"""What older versions of PyTorch cannot do, or do in another way: the tests run on the oldest one that is supported too."""

import pytest
import torch

BEFORE_2_10 = torch.__version__ < "2.10"
BEFORE_2_11 = torch.__version__ < "2.11"

# Strict: it fails as soon as a version can do it.
INDUCTOR_VIEWS_NO_BOOL = pytest.mark.xfail(BEFORE_2_11, reason="Inductor before 2.11 cannot view a bool", strict=True)
DYNAMO_DROPS_THE_TEXT = pytest.mark.xfail(
    BEFORE_2_11, reason="Dynamo before 2.11 leaves out the text of an error that it traced", strict=True
)
PROFILER_WARNS = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
LOADING_WARNS = pytest.mark.filterwarnings("ignore:The given buffer is not writable")
