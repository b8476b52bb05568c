"""The page and the API of the station: :func:`dinosaur_ad.station.web.app.create_app` puts them together."""
