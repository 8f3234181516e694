"""What the doctor says: what a check found, and for what is wrong the cure."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
    "doctor_check_failed": Sentence(
        "The check '{check}' could not be done: {cause}.",
        "无法完成检查 “{check}”：{cause}。",
        "Run it as root, or read the cause.",
        "请以 root 身份运行，或查看原因。",
    ),
    # the system
    "doctor_system": Sentence(
        "{system} on {machine}, Python {python}.",
        "系统为 {system}，{machine}，Python {python}。",
    ),
    "doctor_system_unknown": Sentence(
        "{system} on {machine}, Python {python}: the appliance was not tried on this system.",
        "{system}，{machine}，Python {python}：本程序未在此系统上试过。",
        "It may work; Debian 12, Ubuntu 22.04 and openEuler 22.03 or newer are known to.",
        "可能可用；已知可用的系统是 Debian 12、Ubuntu 22.04、openEuler 22.03 及更新版本。",
    ),
    "doctor_clock": Sentence("The clock shows {shown}.", "系统时间为 {shown}。"),
    "doctor_clock_wrong": Sentence(
        "The clock shows {shown}, which cannot be right.",
        "系统时间为 {shown}，不可能正确。",
        "Set it: date -s 'YYYY-MM-DD HH:MM'; a coin cell on the board keeps it.",
        "请设置时间：date -s 'YYYY-MM-DD HH:MM'；板上装纽扣电池可保持时间。",
    ),
    "doctor_clock_no_rtc": Sentence(
        "The clock shows {shown}, but the board has none that runs without power.",
        "系统时间为 {shown}，但板上没有断电后仍运行的时钟。",
        "Dates may be wrong after a power cut; answers do not depend on them.",
        "断电后日期可能不准；回答不受影响。",
    ),
    "doctor_governor": Sentence(
        "The processor's governor is {governor}.", "处理器调频策略为 {governor}。"
    ),
    "doctor_governor_none": Sentence(
        "The processor's speed is not set by this system.", "本系统不控制处理器频率。"
    ),
    "doctor_governor_slow": Sentence(
        "The processor's governor is {governor}: answers are slower than they need to be.",
        "处理器调频策略为 {governor}：回答会比应有的慢。",
        "Set it: echo performance > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
        "请设置：echo performance > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
    ),
    "doctor_temperature": Sentence(
        "The hottest part is at {celsius} °C.", "最高温度 {celsius} °C。"
    ),
    "doctor_temperature_none": Sentence("No temperature can be read here.", "此处读不到温度。"),
    "doctor_hot": Sentence(
        "The hottest part is at {celsius} °C; the processor will soon slow down.",
        "最高温度 {celsius} °C；处理器很快会降速。",
        "Give it air or a fan.",
        "请改善通风或加装风扇。",
    ),
    "doctor_hottest": Sentence(
        "The hottest part is at {celsius} °C; the board may switch itself off.",
        "最高温度 {celsius} °C；板子可能自行关机。",
        "Switch it off, mount the fan or heat sink, and try again.",
        "请关机，装好风扇或散热片后再试。",
    ),
    "doctor_throttling": Sentence("The processor is not slowed down.", "处理器没有降速。"),
    "doctor_throttled": Sentence(
        "The processor is held below its own limit: {limits}.",
        "处理器频率被限制在自身上限以下：{limits}。",
        "Check the cooling and the power supply (5 A at 5 V, or 65 W USB-C).",
        "请检查散热与电源（5 V 5 A 或 65 W USB-C）。",
    ),
    "doctor_throttle_events": Sentence(
        "The processor was slowed down {n} times since it was switched on.",
        "开机以来处理器因过热降速 {n} 次。",
        "Check the cooling.",
        "请检查散热。",
    ),
    "doctor_memory": Sentence(
        "The models need about {need} of {total}; {available} are free now.",
        "模型约需 {need}，内存共 {total}；现有 {available} 可用。",
    ),
    "doctor_memory_small": Sentence(
        "The models need about {need}, this machine has {total}.",
        "模型约需 {need}，而本机只有 {total}。",
        "Choose a smaller model: appliance models list.",
        "请选择较小的模型：appliance models list。",
    ),
    "doctor_memory_busy": Sentence(
        "The models need about {need}, only {available} of {total} are free.",
        "模型约需 {need}，{total} 中只有 {available} 可用。",
        "End other programs (a desktop, a browser), or choose a smaller model.",
        "请结束其他程序（桌面、浏览器），或选择较小的模型。",
    ),
    "doctor_swap": Sentence(
        "Swap space: {size}, not on a memory card.", "交换空间 {size}，不在存储卡上。"
    ),
    "doctor_swap_card": Sentence(
        "Swapping goes to a memory card ({device}) and wears it out.",
        "交换空间在存储卡上（{device}），会加速其磨损。",
        "Use zram instead, or take the swap file away: swapoff -a.",
        "请改用 zram，或取消交换文件：swapoff -a。",
    ),
    # the disk
    "doctor_mount": Sentence(
        "The data folder is on {filesystem} at {point}: pulling the plug is safe.",
        "数据文件夹位于 {point}（{filesystem}）：可以直接断电。",
    ),
    "doctor_mount_unknown": Sentence(
        "How the data folder is mounted is not known.", "无法得知数据文件夹的挂载方式。"
    ),
    "doctor_mount_read_only": Sentence(
        "The file system at {point} is mounted read-only; nothing can be stored.",
        "{point} 的文件系统以只读方式挂载，无法保存任何内容。",
        "It may have met an error: look at dmesg, run fsck, mount it writable again.",
        "可能曾出错：请查看 dmesg，运行 fsck，再以可写方式挂载。",
    ),
    "doctor_mount_unsafe": Sentence(
        "The data folder is on {filesystem}, which a power cut can damage.",
        "数据文件夹位于 {filesystem} 文件系统，断电可能造成损坏。",
        "Move it to an ext4, btrfs, xfs or f2fs disk.",
        "请移到 ext4、btrfs、xfs 或 f2fs 磁盘。",
    ),
    "doctor_mount_network": Sentence(
        "The data folder is on the network ({filesystem}); the store's locks do not work there.",
        "数据文件夹位于网络文件系统（{filesystem}），知识库的锁在其上不起作用。",
        "Keep the data folder on a disk of this machine; the inbox may be elsewhere.",
        "请把数据文件夹放在本机磁盘上；收件文件夹可以在别处。",
    ),
    "doctor_mount_in_memory": Sentence(
        "The data folder is in memory ({filesystem}): everything is lost with the power.",
        "数据文件夹在内存中（{filesystem}）：断电后全部丢失。",
        "Move it to a disk.",
        "请移到磁盘上。",
    ),
    "doctor_mount_options": Sentence(
        "{point} is mounted with {options}: a power cut can damage the store.",
        "{point} 的挂载选项为 {options}：断电可能损坏知识库。",
        "Take these options out of /etc/fstab and restart.",
        "请从 /etc/fstab 中去掉这些选项并重启。",
    ),
    "doctor_mount_commit": Sentence(
        "{point} is written only every {seconds} s.",
        "{point} 每 {seconds} 秒才写盘一次。",
        "Documents copied just before a power cut may be lost; use commit=5 in /etc/fstab.",
        "断电前刚复制的文档可能丢失；请在 /etc/fstab 中使用 commit=5。",
    ),
    "doctor_mount_atime": Sentence(
        "{point} notes every read, which wears out a memory card.",
        "{point} 会记录每次读取，加速存储卡磨损。",
        "Add noatime to its line in /etc/fstab.",
        "请在 /etc/fstab 的对应行加上 noatime。",
    ),
    "doctor_space": Sentence("{free} of {total} are free.", "磁盘 {total} 中剩余 {free}。"),
    "doctor_space_low": Sentence(
        "Only {free} of {total} are free.",
        "磁盘 {total} 中只剩 {free}。",
        "Remove what is not needed; old models: appliance models remove NAME.",
        "请删除不需要的内容；旧模型可用 appliance models remove NAME 删除。",
    ),
    "doctor_space_none": Sentence(
        "The disk is full: {free} of {total} are free.",
        "磁盘已满：{total} 中只剩 {free}。",
        "Free space now: new documents cannot be stored.",
        "请立即腾出空间：新文档无法保存。",
    ),
    "doctor_disk": Sentence("The disk reports no errors.", "磁盘没有报告错误。"),
    "doctor_disk_errors": Sentence(
        "The file system on {device} has met {n} errors.",
        "{device} 上的文件系统出现过 {n} 个错误。",
        "Make a backup (appliance backup), run fsck, and replace the card or disk.",
        "请先备份（appliance backup），运行 fsck，并更换存储卡或磁盘。",
    ),
    "doctor_disk_worn": Sentence(
        "{device} has used up about {percent} % of its life.",
        "{device} 的寿命已用去约 {percent} %。",
        "Make a backup (appliance backup) and plan to replace it.",
        "请备份（appliance backup）并准备更换。",
    ),
    # the NPU
    "doctor_npu": Sentence("The NPU's device nodes are here.", "NPU 设备节点齐全。"),
    "doctor_npu_none": Sentence("There is no Ascend NPU here.", "本机没有昇腾 NPU。"),
    "doctor_npu_unused": Sentence(
        "The NPU is not used (engine.device, or no plugin is installed).",
        "未使用 NPU（见 engine.device，或未安装插件）。",
    ),
    "doctor_npu_in_use": Sentence(
        "The running daemon has the NPU; see appliance status.",
        "NPU 正由运行中的服务使用；见 appliance status。",
    ),
    "doctor_npu_nodes": Sentence(
        "Device nodes of the NPU are missing: {missing}.",
        "缺少 NPU 设备节点：{missing}。",
        "Install the Ascend driver for this board and restart; in a container map the nodes.",
        "请安装本板的昇腾驱动并重启；在容器中需映射这些节点。",
    ),
    "doctor_npu_group": Sentence(
        "This user may not open the NPU (error 107001, or 0 devices).",
        "当前用户无权打开 NPU（错误 107001，或设备数为 0）。",
        "Run: usermod -aG {group} appliance, then restart the service.",
        "请运行：usermod -aG {group} appliance，然后重启服务。",
    ),
    "doctor_npu_group_ok": Sentence("This user may open the NPU.", "当前用户可以打开 NPU。"),
    "doctor_npu_driver": Sentence("Ascend driver {version}.", "昇腾驱动 {version}。"),
    "doctor_npu_driver_none": Sentence(
        "The Ascend driver is not installed ({path} is not there).",
        "未安装昇腾驱动（没有 {path}）。",
        "Install the driver package of the board's vendor and restart.",
        "请安装板卡厂商的驱动包并重启。",
    ),
    "doctor_cann": Sentence("CANN {version} in {path}.", "CANN {version}，位于 {path}。"),
    "doctor_cann_none": Sentence(
        "CANN is not installed; tried {tried}.",
        "未安装 CANN；已查找 {tried}。",
        "Install the toolkit or nnrt package, and the 310B kernels beside it.",
        "请安装 toolkit 或 nnrt 包，以及配套的 310B 算子包。",
    ),
    "doctor_cann_library": Sentence(
        "libascendcl.so is not in {path}.",
        "{path} 中没有 libascendcl.so。",
        "The package is for another machine or was broken off; install the aarch64 one again.",
        "该包属于其他架构或安装中断；请重新安装 aarch64 版本。",
    ),
    "doctor_cann_kernels": Sentence(
        "The 310B kernels are missing ({path}); every operator would fail with 561xxx.",
        "缺少 310B 算子（{path}）；所有算子都会报 561xxx 错误。",
        "Install Ascend-cann-kernels-310b (8.5 and later: 310b-ops) of the same version.",
        "请安装同版本的 Ascend-cann-kernels-310b（8.5 起为 310b-ops）。",
    ),
    "doctor_cann_several": Sentence(
        "{n} versions of CANN are installed; {version} in {path} is used.",
        "安装了 {n} 个 CANN 版本；使用的是 {path} 中的 {version}。",
        "Set ASCEND_TOOLKIT_HOME to the one you want, or remove the others.",
        "请用 ASCEND_TOOLKIT_HOME 指定所需版本，或删除其余版本。",
    ),
    "doctor_cann_env": Sentence("CANN's variables are in order.", "CANN 环境变量正常。"),
    "doctor_cann_variable": Sentence(
        "{name} points at {path}, which is not there.",
        "{name} 指向不存在的 {path}。",
        "Unset it, or source set_env.sh of the installed version.",
        "请取消该变量，或 source 已安装版本的 set_env.sh。",
    ),
    "doctor_cann_old_variable": Sentence(
        "Only {name} is set, a name of CANN 5 and older that nothing reads today.",
        "只设置了 {name}，这是 CANN 5 及更早的名称，如今不再使用。",
        "Source set_env.sh of the installed version; it sets ASCEND_TOOLKIT_HOME.",
        "请 source 已安装版本的 set_env.sh，它会设置 ASCEND_TOOLKIT_HOME。",
    ),
    "doctor_npu_free": Sentence("Nobody else holds the NPU.", "没有其他进程占用 NPU。"),
    "doctor_npu_held": Sentence(
        "Other processes hold the NPU: {processes}.",
        "其他进程正在占用 NPU：{processes}。",
        "End them; memory they hold is missing for the model.",
        "请结束这些进程；它们占用的内存会使模型装不下。",
    ),
    "doctor_npu_health": Sentence("npu-smi reports no alarm.", "npu-smi 没有报警。"),
    "doctor_npu_alarm_harmless": Sentence(
        "npu-smi shows an alarm ({code}): this board has no current sensor. The NPU computes.",
        "npu-smi 显示报警（{code}）：本板没有电流传感器。NPU 可正常计算。",
    ),
    "doctor_npu_alarm": Sentence(
        "npu-smi reports an alarm: {detail}.",
        "npu-smi 报警：{detail}。",
        "Restart the board; 80F18003 is a memory fault and makes it slow.",
        "请重启板卡；80F18003 表示内存故障，会使速度变慢。",
    ),
    "doctor_npu_smi": Sentence(
        "npu-smi could not be asked: {cause}.",
        "无法运行 npu-smi：{cause}。",
        "It comes with the driver, in /usr/local/sbin; the model works without it.",
        "它随驱动安装，位于 /usr/local/sbin；没有它模型仍可工作。",
    ),
    "doctor_npu_starts": Sentence(
        "{device} starts; {free} of {total} are free, the model's file has {need}.",
        "{device} 启动正常；{total} 中 {free} 可用，模型文件 {need}。",
    ),
    "doctor_npu_memory": Sentence(
        "{device} has {free} free of {total}; the model's file alone has {need}.",
        "{device} 的 {total} 中只有 {free} 可用；仅模型文件就有 {need}。",
        "Choose a smaller model, or end what holds the memory.",
        "请选择较小的模型，或结束占用内存的程序。",
    ),
    "doctor_npu_refuses": Sentence(
        "The NPU cannot be used: {cause}.",
        "NPU 无法使用：{cause}。",
        "Mend what the checks above name; until then the models run on the CPU.",
        "请先解决以上检查指出的问题；在此之前模型在 CPU 上运行。",
    ),
    "doctor_npu_hangs": Sentence(
        "Starting the NPU did not end.",
        "NPU 启动没有结束。",
        "Restart the board; a hung task scheduler does not recover by itself.",
        "请重启板卡；任务调度器卡死后不会自行恢复。",
    ),
    "doctor_npu_crashes": Sentence(
        "Starting the NPU ended the process: {cause}.",
        "NPU 启动时进程退出：{cause}。",
        "The driver and CANN may not fit each other; install a pair the vendor lists.",
        "驱动与 CANN 版本可能不匹配；请安装厂商列出的配套版本。",
    ),
    "doctor_plugin": Sentence("NPU plugin: {path}.", "NPU 插件：{path}。"),
    "doctor_plugin_none": Sentence(
        "The NPU plugin is not installed.",
        "未安装 NPU 插件。",
        "Install a release archive, or build it: make native.",
        "请安装发行包，或自行编译：make native。",
    ),
    "doctor_plugin_unreadable": Sentence(
        "The NPU plugin {path} cannot be read: {cause}.",
        "无法读取 NPU 插件 {path}：{cause}。",
        "Install it again.",
        "请重新安装。",
    ),
    "doctor_plugin_other": Sentence(
        "The NPU plugin {path} is built for {built_for}; this machine is {machine}.",
        "NPU 插件 {path} 是为 {built_for} 编译的；本机是 {machine}。",
        "Install the release archive for this machine.",
        "请安装适用于本机的发行包。",
    ),
    # the box
    "doctor_config": Sentence("{path} has no mistakes.", "{path} 没有错误。"),
    "doctor_config_default": Sentence(
        "{path} is not there; the defaults are in force.", "{path} 不存在；使用默认配置。"
    ),
    "doctor_config_wrong": Sentence(
        "The configuration has {n} mistakes; the checks below use the defaults.",
        "配置有 {n} 处错误；以下检查使用默认值。",
        "Mend the lines named above.",
        "请修改以上指出的各行。",
    ),
    "doctor_folders": Sentence("{path} can be used.", "{path} 可以使用。"),
    "doctor_folder_missing": Sentence(
        "{path} is not there yet.",
        "{path} 尚不存在。",
        "It is made at the first start.",
        "首次启动时会创建。",
    ),
    "doctor_folder_unreadable": Sentence(
        "This user may not read {path}.",
        "当前用户无权读取 {path}。",
        "Run the command as root, or join the group appliance.",
        "请以 root 身份运行，或加入 appliance 组。",
    ),
    "doctor_folder_unwritable": Sentence(
        "This user may not write to {path}.",
        "当前用户无权写入 {path}。",
        "Run: chown -R appliance:appliance {path}",
        "请运行：chown -R appliance:appliance {path}",
    ),
    "doctor_engine_ok": Sentence("llama.cpp can be loaded.", "llama.cpp 可以加载。"),
    "doctor_engine": Sentence(
        "llama.cpp cannot be loaded: {cause}.",
        "无法加载 llama.cpp：{cause}。",
        "Install the library it names (libgomp.so.1: apt-get install libgomp1), or install again.",
        "请安装其指出的库（libgomp.so.1：apt-get install libgomp1），或重新安装。",
    ),
    "doctor_models": Sentence("Models are here: {names}.", "模型已就绪：{names}。"),
    "doctor_model": Sentence(
        "The model {name} cannot be used ({cause}).",
        "模型 {name} 无法使用（{cause}）。",
        "Fetch it: appliance models pull {name}; from a stick: appliance models import FILE.",
        "请下载：appliance models pull {name}；或从 U 盘导入：appliance models import FILE。",
    ),
    "doctor_digests": Sentence("Every byte of the models is right.", "模型文件逐字节校验无误。"),
    "doctor_digest": Sentence(
        "The file of {name} is not what it should be ({cause}).",
        "{name} 的文件与应有内容不符（{cause}）。",
        "Run: appliance models remove {name}, then pull it again. A worn card may be the cause.",
        "请运行 appliance models remove {name} 后重新下载。存储卡老化可能是原因。",
    ),
    "doctor_store": Sentence(
        "The knowledge base is consistent: {documents} documents, {passages} passages.",
        "知识库一致：{documents} 个文档，{passages} 个段落。",
    ),
    "doctor_store_none": Sentence("There is no knowledge base yet.", "还没有知识库。"),
    "doctor_store_in_use": Sentence(
        "The running daemon has the knowledge base; it is asked below.",
        "知识库正由运行中的服务使用；见下面的结果。",
    ),
    "doctor_store_inconsistent": Sentence(
        "The knowledge base has {n} inconsistencies, the first: {first}.",
        "知识库有 {n} 处不一致，第一处：{first}。",
        "Run: appliance kb reindex --all",
        "请运行：appliance kb reindex --all",
    ),
    "doctor_store_corrupt": Sentence(
        "{path} is damaged: {cause}.",
        "{path} 已损坏：{cause}。",
        "Restore a backup (appliance backup restore), or move it away: the inbox rebuilds it.",
        "请恢复备份（appliance backup restore），或移走该文件：会根据收件文件夹重建。",
    ),
    "doctor_store_unopened": Sentence(
        "{path} could not be opened: {cause}.",
        "无法打开 {path}：{cause}。",
        "Run the command as root, or look for another daemon on the same folder.",
        "请以 root 身份运行，或检查是否有另一个服务在使用同一文件夹。",
    ),
    "doctor_port": Sentence("Port {port} is free.", "端口 {port} 可用。"),
    "doctor_port_in_use": Sentence("The daemon has its port.", "服务已占有其端口。"),
    "doctor_port_taken": Sentence(
        "Port {port} cannot be had: {cause}.",
        "无法使用端口 {port}：{cause}。",
        "End the other program (ss -ltnp shows it), or set http.port.",
        "请结束占用它的程序（ss -ltnp 可查看），或修改 http.port。",
    ),
    "doctor_serial": Sentence("Serial lines: {ports}.", "串口：{ports}。"),
    "doctor_serial_none": Sentence("No serial line is configured.", "未配置串口。"),
    "doctor_serial_missing": Sentence(
        "The serial line {port} is not there.",
        "串口 {port} 不存在。",
        "Plug it in; it is opened as soon as it appears.",
        "请插上；出现后会自动打开。",
    ),
    "doctor_serial_getty": Sentence(
        "A login prompt or the kernel's console is on {port}; both would read every second key.",
        "{port} 上有登录提示或内核控制台，会与本程序争抢按键。",
        "Run: systemctl mask --now serial-getty@{port}; take console={port} off the kernel's line.",
        "请运行：systemctl mask --now serial-getty@{port}；并从内核命令行去掉 console={port}。",
    ),
    "doctor_serial_denied": Sentence(
        "This user may not open the serial line {port}.",
        "当前用户无权打开串口 {port}。",
        "Run: usermod -aG dialout appliance, then restart the service.",
        "请运行：usermod -aG dialout appliance，然后重启服务。",
    ),
    "doctor_daemon_runs": Sentence(
        "The daemon runs (started by hand, not as a service).",
        "服务正在运行（手动启动，未安装为系统服务）。",
    ),
    "doctor_daemon_by_hand": Sentence(
        "The appliance is not installed as a service.", "未安装为系统服务。"
    ),
    "doctor_service": Sentence("The service is {state}.", "服务状态：{state}。"),
    "doctor_service_down": Sentence(
        "The service is {state} ({result}).",
        "服务状态：{state}（{result}）。",
        "Read why: journalctl -u appliance -n 50; start it: systemctl start appliance.",
        "查看原因：journalctl -u appliance -n 50；启动：systemctl start appliance。",
    ),
    "doctor_service_restarts": Sentence(
        "The service is {state}, but was restarted {restarts} times.",
        "服务状态：{state}，但已重启 {restarts} 次。",
        "Read why: journalctl -u appliance | grep -i error",
        "查看原因：journalctl -u appliance | grep -i error",
    ),
    "doctor_service_unknown": Sentence(
        "The service manager could not be asked: {cause}.",
        "无法查询服务管理器：{cause}。",
        "Run the command on the box itself, not in a container.",
        "请在设备本身运行，而不是在容器中。",
    ),
    "doctor_kiosk": Sentence("The kiosk can show its page.", "可以显示触摸屏页面。"),
    "doctor_kiosk_none": Sentence("No kiosk is installed.", "未安装触摸屏界面。"),
    "doctor_kiosk_programs": Sentence(
        "The kiosk needs {missing}, which is not installed.",
        "触摸屏界面需要 {missing}，但未安装。",
        "Run: apt-get install cage chromium",
        "请运行：apt-get install cage chromium",
    ),
    "doctor_kiosk_screen": Sentence(
        "There is no screen to show the kiosk on (/dev/dri is empty).",
        "没有可显示的屏幕（/dev/dri 为空）。",
        "Attach the screen before switching on, and enable the board's graphics driver.",
        "请在开机前接好屏幕，并启用板卡的显示驱动。",
    ),
}
