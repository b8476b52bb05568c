"""Who is told what the station saw: MQTT brokers, webhooks and an OPC UA server, all fed by the outbox."""
