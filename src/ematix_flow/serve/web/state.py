"""What all requests of one page share: settings, the run log, logins, limits, events and background work."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.observe.bus import Bus
from ematix_flow.serve.web.identity import Logins
from ematix_flow.serve.web.jobs import Jobs
from ematix_flow.serve.web.limits import RateLimit

if TYPE_CHECKING:
    from ematix_flow.commit.analytics import AnalyticsStore
    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.serve.web.events import EventHub
    from ematix_flow.serve.web.queries import Queries
    from ematix_flow.serve.web.settings import WebSettings


@dataclass(slots=True)
class WebState:
    """The shared state of a page."""

    settings: WebSettings
    events: EventHub
    queries: Queries
    store: AnalyticsStore
    dead_letters: Any
    """Functions about dead letters and positions, as `engine.stream.operations` has them."""
    bus: Bus = field(default_factory=Bus)
    """Receives the events of what the page itself runs."""
    logins: Logins = field(default_factory=Logins)
    login_limit: RateLimit = field(default_factory=lambda: RateLimit(10, 60.0))
    query_limit: RateLimit = field(default_factory=lambda: RateLimit(120, 60.0))
    backfills: set[str] = field(default_factory=set)
    """Ids of the backfills that this process runs."""
    jobs: Jobs = field(default_factory=lambda: Jobs(2, 100))
    """Plans that are made or applied."""
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def log(self) -> RunLog:
        """Return the run log."""
        return self.settings.log
