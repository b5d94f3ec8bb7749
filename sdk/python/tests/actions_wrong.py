import actions

from sealog import Event

actions.user_logn()  # wrong: no such action
actions.user_login(actor="u-17")  # wrong: no such field
actions.order_shipped_66a30e86()  # wrong: no required field
actions.order_shipped_66a30e86(carrier="DHL")  # wrong: no tracking_id
actions.order_shipped_66a30e86(carrier="DHL", tracking_id=None)  # wrong: None is no value
actions.order_shipped_66a30e86(carrier="DHL", tracking_id=b"x")  # wrong: not JSON
actions.ai_act_inference_logged(ai_system_id="s-1")  # wrong: no model_version
no_action: Event = {"actor_id": "u-17"}  # wrong: no action
no_such_field: Event = {"action": "user.login", "actorId": "u-17"}  # wrong: no such field
