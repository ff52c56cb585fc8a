"""What a weights file is and holds, judged by its content: headers and pickle opcodes only, never torch."""
