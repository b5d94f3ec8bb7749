mod actions;

fn main() {
    let _ = actions::user_logn(); // wrong: no such action
    let _ = actions::user_login().actor("u-17"); // wrong: no such field
    let _ = actions::order_shipped_66a30e86(); // wrong: no required field
    let _ = actions::order_shipped_66a30e86("DHL"); // wrong: no tracking-id
    let _ = actions::order_shipped_66a30e86("DHL", std::thread::spawn(|| ())); // wrong: not JSON
    let _ = actions::ai_act_inference_logged("s-1"); // wrong: no model_version
    let _ = actions::order_shipped_66a30e86("DHL", 1);
}
