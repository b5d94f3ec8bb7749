"""Events by the functions that `sealog actions --emit py` wrote: complete ones pass."""

import actions

from sealog import Event
from sealog.testing import Recorder

client = Recorder()
client.log(actions.user_login())
client.log(actions.user_login(actor_id="u-17", metadata={"method": "password"}))
event: Event = actions.order_shipped_66a30e86(carrier="DHL", tracking_id=4711, metadata={"weight": None})
client.enqueue(event)
client.log(actions.order__returned____(class_=True, metadata_45447b7a={}, actor_id_fe4b4e16=[], actor_id="u-17"))
client.log(actions.order_shipped_1feff949(resource="order/7"))
client.log(actions.import_(a_9_lives=9, gr__e="XL"))
client.log(actions.ai_act_inference_logged(ai_system_id="s-1", model_version="2"))
literal: Event = {"action": "user.logout", "actor_id": None, "metadata": {"a": [1]}}
client.log(literal)
client.assert_logged("order.shipped", metadata={"carrier": "DHL", "tracking-id": 4711, "weight": None})
client.assert_logged('order "returned" */', actor_id="u-17", metadata={"class": True, "metadata": {}, "actor_id": []})
client.assert_logged("order_shipped", resource="order/7")
client.assert_logged("import", metadata={"9 lives": 9, "größe": "XL"})
client.close()
