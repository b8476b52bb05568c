"""An RTSP camera for the tests, run by the system's Python, which has GStreamer: `python3 rtsp_server.py PORT`.

Prints its port once it can be reached.
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

Gst.init(None)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service(sys.argv[1])
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(
    "( videotestsrc is-live=true pattern=ball ! video/x-raw,width=160,height=120,framerate=15/1 ! videoconvert ! "
    "x264enc tune=zerolatency speed-preset=ultrafast key-int-max=8 ! rtph264pay name=pay0 pt=96 config-interval=1 )"
)
factory.set_shared(True)
server.get_mount_points().add_factory("/line", factory)
if not server.attach(None):
    sys.exit("the port is taken")
print(server.get_bound_port(), flush=True)
GLib.MainLoop().run()
