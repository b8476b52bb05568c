"""The station: a resident inspector beside a line. Pictures come in, verdicts go out, people look and correct.

    source -> picture -> part (all its views) -> judged -> journal -> history -> page, sinks

:mod:`dinosaur_ad.station.service` puts the pieces together; each of them can be read by itself.
"""
