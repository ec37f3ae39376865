import os, time
children = 0
for _ in range(50):
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        children += 1
    except OSError:
        break
emit({"children": children})
