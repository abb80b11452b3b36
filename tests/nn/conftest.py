import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from layers import FACES


@pytest.fixture(params=sorted(FACES))
def face(request):
    return FACES[request.param]
